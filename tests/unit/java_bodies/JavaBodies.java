import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * RocketMQ's own bodies, written by its own fastjson.
 *
 * <p>Prints for each class that is named a line {@code name TAB full TAB standard TAB empty}: a value with every field
 * set, as JSON and with the features that a name server sets for clients since 4.9.4, and a new one.
 */
public final class JavaBodies {
    private static final String ROOT = "org.apache.rocketmq.";
    private static final String[] PACKAGES = {
        "common.", "common.admin.", "common.message.", "common.protocol.body.", "common.protocol.header.",
        "common.protocol.heartbeat.", "common.protocol.route.", "common.protocol.topic.", "common.subscription.",
        "store.schedule.", "remoting.protocol.body.",
    };
    private static final SerializerFeature[] STANDARD = {
        SerializerFeature.BrowserCompatible, SerializerFeature.QuoteFieldNames, SerializerFeature.SkipTransientField,
        SerializerFeature.MapSortField,
    };

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // where RocketMQ logs
        for (String name : args) {
            Object full = filled(named(name), "");
            String empty = JSON.toJSONString(fresh(named(name)));
            out.println(String.join("\t", name, JSON.toJSONString(full), JSON.toJSONString(full, STANDARD),
                empty.replaceAll("(\"(timestamp|subVersion)\"):\\d+", "$1:0")));
        }
        out.flush();
    }

    private static Class<?> named(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            try {
                return Class.forName(ROOT + place + name);
            } catch (ClassNotFoundException e) {
                // In the next one, perhaps.
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Object fresh(Class<?> type) throws Exception {
        Constructor<?> shortest = null;
        for (Constructor<?> one : type.getConstructors()) {
            if (shortest == null || one.getParameterCount() < shortest.getParameterCount()) {
                shortest = one;
            }
        }
        List<Object> arguments = new ArrayList<>();
        for (Class<?> parameter : shortest.getParameterTypes()) {
            arguments.add(parameter == int.class ? (Object) 0 : parameter == long.class ? (Object) 0L : null);
        }
        return shortest.newInstance(arguments.toArray());
    }

    private static Object filled(Class<?> type, String where) throws Exception {
        Object bean = fresh(type);
        for (Field field : type.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isFinal(field.getModifiers())) {
                field.setAccessible(true);
                field.set(bean, value(field.getGenericType(), where + "." + field.getName()));
            }
        }
        return bean;
    }

    /** A value that is different in each place, of the type that is declared there. */
    private static Object value(Type type, String where) throws Exception {
        int number = where.hashCode();
        if (type instanceof ParameterizedType) {
            return container((Class<?>) ((ParameterizedType) type).getRawType(),
                ((ParameterizedType) type).getActualTypeArguments(), where);
        } else if (type == String.class) {
            return where + " \u00e9\u0001\u0085\u2028\"\\/";
        } else if (type == int.class || type == Integer.class) {
            return number;
        } else if (type == long.class || type == Long.class) {
            return number * 4294967297L;
        } else if (type == double.class) {
            return number * 1e-5;
        } else if (type == boolean.class) {
            return number % 2 == 0;
        } else if (type == AtomicLong.class) {
            return new AtomicLong(number);
        } else if (type == Properties.class) {
            Properties properties = new Properties();
            properties.put(where, "value");
            return properties;
        } else if (((Class<?>) type).isEnum()) {
            Object[] constants = ((Class<?>) type).getEnumConstants();
            return constants[constants.length - 1];
        }
        return filled((Class<?>) type, where);
    }

    private static Object container(Class<?> type, Type[] arguments, String where) throws Exception {
        Object one = value(arguments[0], where + ".0");
        if (Map.class.isAssignableFrom(type)) {
            Map<Object, Object> map = type == TreeMap.class ? new TreeMap<>()
                : type == HashMap.class || type == Map.class ? new HashMap<>() : new ConcurrentHashMap<>();
            map.put(one, value(arguments[1], where + ".1"));
            return map;
        } else if (Set.class.isAssignableFrom(type)) {
            Set<Object> set = type == TreeSet.class ? new TreeSet<>() : new HashSet<>();
            set.add(one);
            return set;
        }
        return new ArrayList<>(List.of(one, value(arguments[0], where + ".2")));
    }
}
