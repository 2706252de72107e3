package gzip

import (
	"hash/crc32"
	"io"
)

// Stream compresses the bytes that are written to it into one gzip member. Unlike Compressor.Write, it keeps nothing for later
// answers. It compresses each Write independently, so a few large Writes are best. It takes an encoder, which is large, only
// while it compresses, and returns the encoder before it writes to a client that may be slow. A Stream is for one goroutine,
// which must close it.
type Stream struct {
	compressor *Compressor
	member     member
	// buffer has the compressed bytes of the last Write. Its memory is reused.
	buffer []byte
}

// NewStream returns a Stream that writes to w.
func (c *Compressor) NewStream(w io.Writer) *Stream {
	s := &Stream{compressor: c, member: member{w: w}}
	s.member.write(gzipHeader)
	return s
}

// Write implements io.Writer. It returns the first error of the underlying writer.
func (s *Stream) Write(p []byte) (int, error) {
	if s.member.err != nil {
		return 0, s.member.err
	}
	s.compress(p)
	s.member.crc = crc32.Update(s.member.crc, crc32.IEEETable, p)
	s.member.length += uint32(len(p)) // #nosec G115 -- modulo 2³² is meant
	s.member.write(s.buffer)
	return len(p), s.member.err
}

// compress compresses p into the buffer.
func (s *Stream) compress(p []byte) {
	e := s.compressor.encoders.Get().(*encoder)
	defer s.compressor.encoders.Put(e)
	e.out.Reset()
	e.deflate(p, nil) // p refers to no bytes before it
	s.buffer = append(s.buffer[:0], e.out.Bytes()...)
}

// Close ends the gzip member. It does not close the underlying writer.
func (s *Stream) Close() error {
	s.member.end()
	return s.member.err
}
