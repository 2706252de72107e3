// Package telemetry is how listproxy tells its operators what it does: its log,
// its traces and metrics, and its status page.
//
// # Design
//
// The process makes one [log/slog.Logger] with [NewLogger] and hands it to
// whoever needs it. Nothing in this package is global and nothing here imports
// another package of listproxy.
//
// The status page is a [Status], a plain struct that others fill, shown as HTML
// and JSON by [StatusHandler] and as text by [Status.WriteText].
//
// # Invariants
//
//   - No credential reaches the log. The first line of defence is that nobody
//     logs one; this package is the second, for the error text of a library or
//     for a value that somebody added in a hurry. Attributes whose key speaks of
//     a credential are masked whatever they hold, and every finished line is
//     searched for what credentials look like before it is written.
//   - A record is one line and one Write, so that lines of concurrent requests
//     do not mix.
//   - What clients call themselves ([UserAgent]) is bounded in length, characters
//     and number before anything keeps it.
//   - Masking errs on the side of hiding: a word too many may be masked, a
//     credential in a known form may not pass.
package telemetry
