// Package source reads one resource from the upstream, with listproxy's own credentials: lists, the
// question for the current revision, and watches. It bounds the time and the size of each answer, and
// says what an error means; what follows from that, its callers decide.
package source
