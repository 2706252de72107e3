package harness

import (
	"errors"
	"os"
	"strings"

	"github.com/listproxy/listproxy/test/harness/secrets"
)

const (
	// toldLines is how many lines of a log a failure tells. It is few, because whoever reads of a
	// failure on another machine may see no more than the end of what was printed, and needs the
	// reason.
	toldLines = 20
	// reportLines are for a data race or a panic, which is a reason by itself.
	reportLines = 80
)

// Told is what a failure tells of the log, with secrets masked: the report of a data race or a
// panic, or else the last lines that are not about requests, and the name of a file that has the
// whole log.
func (p *Proxy) Told() string {
	log := secrets.Suite.Masked(p.Log())
	told := lastOf(log)
	if file, err := keep(log); err == nil {
		told = "(the whole log is in " + file + ")\n" + told
	}
	return told
}

func keep(log string) (name string, err error) {
	f, err := os.CreateTemp("", "listproxy-*.log")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(log)
	return f.Name(), errors.Join(err, f.Close())
}

// lastOf returns what of a log says most.
func lastOf(log string) string {
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
	return strings.Join(lines[max(0, len(lines)-toldLines):], "")
}
