// Package telemetry makes the process's log, metrics registry and tracer. Package proxy/observe reports requests with
// these. The status page is in proxy/admin. This package imports no other package of listproxy.
//
// # Invariants
//
//   - No credential reaches the log. The first line of defence is that no code logs a credential. The second line is
//     this package, for error texts of libraries and for mistakes. In the log it masks attributes whose keys name a
//     credential. In each finished line it masks text in the form of a credential, at the price of harmless words in
//     that form.
//   - A record is one line and one Write, so that the lines of concurrent requests do not mix.
//   - The name that a client gives itself ([UserAgent]) is bounded in length and characters.
package telemetry
