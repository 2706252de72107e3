package gzip

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"iter"
)

// member writes one gzip member (RFC 1952). It joins segments of compressed objects (segment.go) and stored blocks, which are
// deflate's blocks of uncompressed bytes.
type member struct {
	w io.Writer
	// err is the first error of w. Nothing is written after it.
	err error
	// crc is the checksum of the uncompressed bytes, and length is their number modulo 2³².
	crc    uint32
	length uint32
}

// gzipHeader is the header of a member: the magic number, deflate, no flags, no time, the fastest compression, an unknown
// operating system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

// maxStored is the largest number of bytes in a stored block of deflate.
const maxStored = 1<<16 - 1

// WriteStored writes a gzip member that holds the parts uncompressed, without copying them. It is for bytes that are written
// only once.
func WriteStored(w io.Writer, parts iter.Seq[[]byte]) error {
	m := member{w: w}
	m.write(gzipHeader)
	for part := range parts {
		m.writeStored(part)
	}
	m.end()
	return m.err
}

// write writes bytes of the member as they are.
func (m *member) write(p []byte) {
	if m.err == nil {
		_, m.err = m.w.Write(p)
	}
}

// writeSegment writes a segment, and joins its checksum to that of the bytes before it.
func (m *member) writeSegment(s *segment) {
	m.write(s.deflated)
	m.crc = crcJoin(m.crc, s.crc, s.shift)
	m.length += s.length
}

// writeStored writes p uncompressed, in stored blocks. For the few bytes around segments, compression would not pay.
func (m *member) writeStored(p []byte) {
	m.crc = crc32.Update(m.crc, crc32.IEEETable, p)
	m.length += uint32(len(p)) // #nosec G115 -- modulo 2³² is meant
	for len(p) > 0 {
		block := p[:min(len(p), maxStored)]
		p = p[len(block):]
		m.writeStoredHead(notFinal, len(block))
		m.write(block)
	}
}

// The values of a deflate block's first bit.
const (
	notFinal = 0
	final    = 1
)

// writeStoredHead writes the head of a stored block of n bytes: a byte with the first bit, the type (stored) and padding, then
// n and its complement. All blocks and segments before the head end at a byte boundary.
func (m *member) writeStoredHead(firstBit byte, n int) {
	head := [5]byte{firstBit}
	binary.LittleEndian.PutUint16(head[1:], uint16(n))  // #nosec G115 -- at most maxStored
	binary.LittleEndian.PutUint16(head[3:], ^uint16(n)) // #nosec G115 -- as above
	m.write(head[:])
}

// end ends the member with two empty blocks. A final block alone would be valid gzip. But Go's gzip.Reader holds back the bytes
// before a final block until the next member comes: in a watch, until the next event. After a block that is not final, the
// reader returns the bytes at once.
func (m *member) end() {
	m.writeStoredHead(notFinal, 0)
	m.writeStoredHead(final, 0)
	trailer := binary.LittleEndian.AppendUint32(nil, m.crc)
	m.write(binary.LittleEndian.AppendUint32(trailer, m.length))
}
