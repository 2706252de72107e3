// Package telemetry makes the process's log, metrics registry and tracer, with which package proxy/observe reports requests.
// This package imports no other package of listproxy.
//
// # Invariants
//
//   - No credential reaches the log. No code logs one on purpose. Against mistakes, and error texts of libraries, this
//     package masks attributes whose keys name a credential, and any text in a finished line that looks like one. Some
//     harmless words look like one, and are masked, too.
//   - A record is one line and one Write, so that the lines of concurrent requests do not mix.
//   - The name that a client gives itself ([UserAgent]) is bounded in length and characters.
package telemetry
