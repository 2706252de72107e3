package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/faults/load"
)

// report is what a case says at its end.
type report struct {
	name string
	load.Counts
	unserved string // why no answer need come from memory, and be right, while the fault lasts
	// Since the end of the fault; nil where it is not measured: when something new came from memory
	// first, and when all that is kept was new. noticed: since kube-apiserver was back, of one that
	// was restarted or whose etcd was replaced.
	fresh, recovered, noticed *time.Duration
}

// table of reports, in Markdown.
func table(reports []report) string {
	var b strings.Builder
	b.WriteString("| case | compared | wrong | during it | from memory | not answered | followers true | most behind | first new | all back | noticed |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range reports {
		compared := fmt.Sprint(r.Compared)
		if r.Recorded > 0 {
			compared += fmt.Sprintf(" (%d recorded)", r.Recorded)
		}
		during := fmt.Sprintf("%d of %d", r.DuringRight, r.During)
		if r.unserved != "" {
			during += ": " + r.unserved
		}
		_, _ = fmt.Fprintf(&b, "| %s | %s | %d | %s | %.0f %% | %d | %d | %s | %s | %s | %s |\n", r.name, compared, r.Wrong, during,
			r.Share(), r.Refused, r.Followed, seconds(r.Behind), measured(r.fresh), measured(r.recovered), measured(r.noticed))
	}
	return b.String()
}

// measured is a time, if it was measured.
func measured(d *time.Duration) string {
	if d == nil {
		return ""
	}
	return seconds(*d)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
