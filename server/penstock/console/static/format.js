// Numbers, times and names as people read them.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const FINE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const DOMAIN = "$domain:";
const OVERRIDE = "$override:";

export const whole = (number) => WHOLE.format(number);

export const short = (number) => (Math.abs(number) < 1000 ? FINE.format(number) : SHORT.format(number));

/** Microseconds, in the unit that fits. */
export function micros(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${us} µs`;
  return us < 1_000_000 ? `${FINE.format(us / 1000)} ms` : `${FINE.format(us / 1_000_000)} s`;
}

/** A time to wait, in the two largest units. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "never";
  const seconds = Math.ceil(ms / 1000);
  const units = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0 s";
  const [name, size] = units[first];
  const rest = units[first + 1];
  const more = rest ? Math.floor((seconds % size) / rest[1]) : 0;
  return `${Math.floor(seconds / size)} ${name}${more ? ` ${more} ${rest[0]}` : ""}`;
}

export function clock(ms, withSeconds = true) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(ms).toLocaleTimeString("en", withSeconds ? { ...options, second: "2-digit" } : options);
}

export const percent = (share) => `${FINE.format(100 * share)} %`;

/** A resource: the domain of a rule, or what is consumed. */
export function resource(name) {
  if (name.startsWith(DOMAIN)) return name.slice(DOMAIN.length);
  return name.startsWith(OVERRIDE) ? `${name.slice(OVERRIDE.length)} (override)` : name;
}

export const isRule = (name) => name.startsWith("$");

/** A limit in a few words. The rate alone tells it if the limit has no name. */
export function limit(limit) {
  const rate = limit.rate.split(",")[0];
  return limit.name ? `${limit.name} ${rate}` : rate;
}
