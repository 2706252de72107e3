package oracle

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestList: a list must hold what was written in time, whatever was confirmed in which order, and be of the revision
// that was asked for or later.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6 * time.Second
		var l Ledger[string]
		begun := time.Now()
		for _, revision := range []uint64{10, 12, 11, 14, 14} { // at 0 s, 1 s, …
			l.Confirmed("pods", revision)
			time.Sleep(time.Second)
		}
		within := func(asked time.Duration) time.Time { return Within(bound, begun.Add(asked)) }
		for name, tt := range map[string]struct {
			list     List
			revision uint64
			wrong    bool
		}{
			"the newest, for ever":               {list: List{Holds: within(time.Hour)}, revision: 14},
			"newer than what was confirmed":      {list: List{Holds: within(time.Hour)}, revision: 15},
			"older, and in time":                 {list: List{Holds: within(3*time.Second + bound)}, revision: 13},
			"older, within the tolerance":        {list: List{Holds: within(2*time.Second + bound + Tolerance)}, revision: 12},
			"too old":                            {list: List{Holds: within(3*time.Second + bound + Tolerance)}, revision: 12, wrong: true},
			"without one that was overtaken":     {list: List{Holds: begun.Add(2 * time.Second)}, revision: 11, wrong: true},
			"before anything was written":        {list: List{Holds: begun.Add(-1)}, revision: 1},
			"of any age":                         {revision: 1},
			"of the revision that was asked for": {list: List{Revision: 9}, revision: 9},
			"before that":                        {list: List{Revision: 9}, revision: 8, wrong: true},
			"exactly that":                       {list: List{Revision: 9, Exactly: true}, revision: 9},
			"not exactly that":                   {list: List{Revision: 9, Exactly: true}, revision: 10, wrong: true},
		} {
			if err := tt.list.Judge(tt.revision, l.BeforeOfAll); (err != nil) != tt.wrong {
				t.Errorf("%s: %v, and it is wrong: %t", name, err, tt.wrong)
			}
		}
	})
}
