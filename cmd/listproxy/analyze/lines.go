package analyze

import (
	"bufio"
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	// maxLine is the length in bytes of the longest line that can be read. An audit event has about a kilobyte, but one
	// of the level RequestResponse contains the whole list.
	maxLine = 256 << 20
	// lineBuffer is the length in bytes of the lines that are read without allocating more memory.
	lineBuffer = 1 << 20
)

// gzipMagic are the first bytes of every gzip file.
var gzipMagic = []byte{0x1f, 0x8b}

// eachLine calls visit for each line of a log, without the line break, and skips blank lines. visit must not keep the line.
// The log may be compressed with gzip. If reading fails, or a line is longer than maxLine, eachLine returns an error after it
// has visited the lines before.
func eachLine(log io.Reader, visit func(line []byte)) error {
	buffered := bufio.NewReader(log)
	text := io.Reader(buffered)
	// An error of Peek comes again when the text is read.
	if head, _ := buffered.Peek(len(gzipMagic)); bytes.Equal(head, gzipMagic) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return err
		}
		text = unzipped
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, lineBuffer), maxLine)
	for lines.Scan() {
		if line := lines.Bytes(); len(bytes.TrimSpace(line)) > 0 {
			visit(line)
		}
	}
	return lines.Err()
}
