package harness

import (
	"errors"
	"os"
	"strings"

	"github.com/listproxy/listproxy/test/harness/secrets"
)

const (
	// excerptLines is the number of last lines in an excerpt. It is small, since a reader of a CI log may see only the end of
	// the output, and needs the error above the excerpt.
	excerptLines = 20
	// reportLines is the number of lines of a data race or a panic.
	reportLines = 80
)

// LogExcerpt returns the part of the log for the message of a failure, with secrets masked: the report of a data race or a
// panic, or else the last lines that are not about requests. It names a file with the whole log.
func (p *Proxy) LogExcerpt() string {
	log := secrets.Suite.Masked(p.Log())
	text := excerpt(log)
	if file, err := writeTemp(log); err == nil {
		text = "(the whole log is in " + file + ")\n" + text
	}
	return text
}

// writeTemp writes a log into a new file and returns its name.
func writeTemp(log string) (name string, err error) {
	f, err := os.CreateTemp("", "listproxy-*.log")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(log)
	return f.Name(), errors.Join(err, f.Close())
}

// excerpt returns the lines of a log for LogExcerpt.
func excerpt(log string) string {
	for _, report := range []string{"WARNING: DATA RACE", "fatal error:", "panic:"} {
		if i := strings.Index(log, report); i >= 0 {
			lines := strings.SplitAfter(log[i:], "\n")
			return strings.Join(lines[:min(len(lines), reportLines)], "")
		}
	}
	var lines []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "msg=request ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-excerptLines):], "")
}
