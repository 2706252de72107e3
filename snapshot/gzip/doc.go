// Package gzip writes lists and initial events with gzip. It compresses each object once, not once for every answer.
//
// A [Compressor] splits a list into segments of neighboring objects, and keeps compressed segments in a bounded cache. A
// segment consists of pieces. If an object changes, its piece and the next one are compressed again.
package gzip
