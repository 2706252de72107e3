// Package telemetry has the process's log, metrics registry and tracer. What they say of requests is
// in proxy/observe; the status page is in proxy/admin.
//
// # Design
//
// The process makes one [log/slog.Logger] with [NewLogger] and hands it to
// everything that logs. Nothing in this package is global, and it imports no other
// package of listproxy.
//
// # Invariants
//
//   - No credential reaches the log. The first line of defence is that no code
//     logs one. This package is the second, for error texts of libraries and for
//     mistakes. Attributes whose key names a credential are masked, whatever
//     their value, and every finished line is searched for text that looks like
//     a credential before it is written.
//   - A record is one line and one Write, so that lines of concurrent requests
//     do not mix.
//   - The names that clients give themselves ([UserAgent]) are bounded in length,
//     characters and number before anything keeps them.
//   - When in doubt, text is masked: harmless words may be masked, but a credential in a known form
//     never passes.
package telemetry
