// Package statusz is the status page. A [Status] is a plain struct that others fill. It is shown as
// HTML and JSON by [Handler], and as text by [Status.WriteText].
package statusz
