package analyze

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	// maxLine is the length in bytes of the longest line that is read. An audit event is about a kilobyte, but one of
	// the level RequestResponse has the whole list in it.
	maxLine = 32 << 20
	// lineBuffer is the number of bytes that are read at a time.
	lineBuffer = 1 << 20
)

// gzipMagic are the first bytes of every gzip file.
var gzipMagic = []byte{0x1f, 0x8b}

// eachLine calls take for every line of a log that is not empty, without its line break. Instead of a line longer than
// maxLine, take gets nil. The line is valid until take returns. The log may be compressed with gzip. If reading fails,
// take has been called for all lines before.
func eachLine(log io.Reader, take func(line []byte)) error {
	plain := bufio.NewReaderSize(log, lineBuffer)
	if head, _ := plain.Peek(len(gzipMagic)); bytes.Equal(head, gzipMagic) {
		unzipped, err := gzip.NewReader(plain)
		if err != nil {
			return err
		}
		plain = bufio.NewReaderSize(unzipped, lineBuffer)
	}
	var line []byte
	tooLong := false
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
