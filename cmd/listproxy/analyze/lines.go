package analyze

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	// maxLine is the longest line that is read, in bytes. An audit event is about a kilobyte, but
	// one of level RequestResponse holds the whole list.
	maxLine = 32 << 20
	// lineBuffer is what is read at a time.
	lineBuffer = 1 << 20
)

// gzipMagic is how every gzip file begins.
var gzipMagic = []byte{0x1f, 0x8b}

// eachLine calls take for every line of a log, which may be compressed with gzip, without its line
// break. Lines that are empty are left out; of one that is longer than maxLine take gets nil. The
// bytes are good until take returns. The error is of reading: what came before it was taken.
func eachLine(log io.Reader, take func(line []byte)) error {
	plain := bufio.NewReaderSize(log, lineBuffer)
	if head, _ := plain.Peek(len(gzipMagic)); bytes.Equal(head, gzipMagic) {
		unzipped, err := gzip.NewReader(plain)
		if err != nil {
			return err
		}
		plain = bufio.NewReaderSize(unzipped, lineBuffer)
	}
	var long []byte // the beginning of a line that is longer than the buffer
	tooLong := false
	for {
		part, err := plain.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if tooLong = tooLong || len(long)+len(part) > maxLine; !tooLong {
				long = append(long, part...)
			}
			continue
		}
		line := part
		if len(long) > 0 {
			line = append(long, part...) //nolint:gocritic // one buffer for all long lines
			long = line[:0]
		}
		switch line = bytes.TrimSpace(line); {
		case tooLong:
			take(nil)
		case len(line) > 0:
			take(line)
		}
		tooLong = false
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
