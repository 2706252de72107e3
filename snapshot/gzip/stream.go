package gzip

import (
	"hash/crc32"
	"io"
)

// Stream compresses the bytes that are written to it, for answers of which no compressed segments are kept. It compresses
// each Write independently, so a few large ones are best. It has an encoder, which is large, only within Write: slow
// clients hold none. A Stream must be closed. It is for one goroutine.
type Stream struct {
	compressor *Compressor
	compressed []byte // the result of the last Write; a buffer for the next
	out        member
}

// Stream returns a Stream that writes to w.
func (c *Compressor) Stream(w io.Writer) *Stream {
	s := &Stream{compressor: c, out: member{w: w}}
	s.out.write(gzipHeader)
	return s
}

// Write implements io.Writer. It returns the first error of the underlying writer.
func (s *Stream) Write(p []byte) (int, error) {
	if s.out.err != nil {
		return 0, s.out.err
	}
	s.compress(p)
	s.out.crc = crc32.Update(s.out.crc, crc32.IEEETable, p)
	s.out.length += uint32(len(p)) // #nosec G115 -- modulo 2³² is meant
	s.out.write(s.compressed)
	return len(p), s.out.err
}

// compress compresses p into s.compressed.
func (s *Stream) compress(p []byte) {
	e := s.compressor.encoders.Get().(*encoder)
	defer s.compressor.encoders.Put(e)
	e.out.Reset()
	e.deflate(p, nil)
	s.compressed = append(s.compressed[:0], e.out.Bytes()...)
}

// Close ends the gzip member. It does not close the underlying writer.
func (s *Stream) Close() error {
	s.out.end()
	return s.out.err
}
