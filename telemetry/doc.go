// Package telemetry makes the process's log, metrics registry and tracer. Package proxy/observe writes to them about
// requests; the status page is in proxy/admin.
//
// The process makes one [log/slog.Logger] with [NewLogger], and hands it to everything that logs. This package imports
// no other package of listproxy.
//
// # Invariants
//
//   - No credential reaches the log. The first line of defence is that no code logs one. This package is the second,
//     for the error texts of libraries and for mistakes. It masks every attribute whose key names a credential, and in
//     every finished line all text in the form of a credential. Harmless words of that form are masked, too.
//   - A record is one line and one Write, so that the lines of concurrent requests do not mix.
//   - The name that a client gives itself ([UserAgent]) is bounded in length and characters.
package telemetry
