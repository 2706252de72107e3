// Package telemetry makes the process's log, metrics registry and tracer, with which package proxy/observe reports requests.
// This package imports no other package of listproxy.
//
// # Invariants
//
//   - No credential reaches the log. No code logs a credential. In case of a mistake, and for error texts of libraries, this
//     package masks attributes whose keys name a credential, and in each finished line text in the form of a credential.
//     It also masks some harmless words in such a form.
//   - A record is one line and one Write, so that the lines of concurrent requests do not mix.
//   - The name that a client gives itself ([UserAgent]) is bounded in length and characters.
package telemetry
