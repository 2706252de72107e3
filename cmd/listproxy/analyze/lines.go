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
	line, tooLong := []byte{}, false
	for {
		part, more, err := plain.ReadLine()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case tooLong, len(line)+len(part) > maxLine:
			tooLong = true
		default:
			line = append(line, part...)
		}
		if more {
			continue
		}
		if tooLong {
			take(nil)
		} else if len(bytes.TrimSpace(line)) > 0 {
			take(line)
		}
		line, tooLong = line[:0], false
	}
}
