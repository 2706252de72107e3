// Package gzip writes lists and initial events with gzip. It compresses each object once, not once
// for every answer.
//
// A list is cut into segments, runs of neighbouring objects, which a [Compressor] keeps in a
// bounded cache. A segment consists of pieces. If an object changes, two pieces are compressed
// again.
package gzip
