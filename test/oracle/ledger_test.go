package oracle

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestList: List.Judge requires that a list has every write that was confirmed by List.Holds, in whatever order writes were
// confirmed, and that its revision is at least List.Revision, or with Exactly that one.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6 * time.Second
		var l Ledger[string]
		begun := time.Now()
		for _, revision := range []uint64{10, 12, 11, 14, 14} { // at 0 s, 1 s, …
			l.Confirm("pods", revision)
			time.Sleep(time.Second)
		}
		within := func(asked time.Duration) time.Time { return Within(bound, begun.Add(asked)) }
		for name, tt := range map[string]struct {
			list     List
			revision uint64 // of the answer
			wantErr  bool
		}{
			"newer than all confirmed":                          {list: List{Holds: within(time.Hour)}, revision: 15},
			"old, within the bound":                             {list: List{Holds: within(3*time.Second + bound)}, revision: 13},
			"old, within bound and tolerance":                   {list: List{Holds: within(2*time.Second + bound + Tolerance)}, revision: 12},
			"older than bound and tolerance":                    {list: List{Holds: within(3*time.Second + bound + Tolerance)}, revision: 12, wantErr: true},
			"without a write confirmed before a lower revision": {list: List{Holds: begun.Add(2 * time.Second)}, revision: 11, wantErr: true},
			"asked before the first write":                      {list: List{Holds: begun.Add(-1)}, revision: 1},
			"any age allowed":                                   {revision: 1},
			"at least 9, is 8":                                  {list: List{Revision: 9}, revision: 8, wantErr: true},
			"exactly 9, is 9":                                   {list: List{Revision: 9, Exactly: true}, revision: 9},
			"exactly 9, is 10":                                  {list: List{Revision: 9, Exactly: true}, revision: 10, wantErr: true},
		} {
			if err := tt.list.Judge(tt.revision, l.BeforeOfAll); (err != nil) != tt.wantErr {
				t.Errorf("%s: got %v, want an error: %t", name, err, tt.wantErr)
			}
		}
	})
}
