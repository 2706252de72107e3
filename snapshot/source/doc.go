// Package source reads one resource from the upstream, with listproxy's own credentials: lists,
// probes for the current revision, and watches. It bounds the time and the size of each answer, and
// says what an error means; its callers decide what follows from that.
package source
