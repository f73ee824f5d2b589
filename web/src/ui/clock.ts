// A clock for what must count on while nothing arrives.
import { useEffect, useState } from 'preact/hooks';

/** performance.now(), several times a second as long as `running`. */
export function useClock(running: boolean): number {
  const [now, setNow] = useState(() => performance.now());
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(() => setNow(performance.now()), 200);
    return () => clearInterval(timer);
  }, [running]);
  return running ? Math.max(now, performance.now()) : now;
}
