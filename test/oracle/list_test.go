package oracle

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestList: List.Judge requires that a list has every write that was confirmed by List.ConfirmedBy, in whatever order writes were
// confirmed, and that its revision is at least List.Revision, or with Exactly that one.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6 * time.Second
		var l Ledger[string]
		firstWrite := time.Now()
		for _, revision := range []uint64{10, 12, 11, 14, 14} { // at 0 s, 1 s, …
			l.Confirm("pods", revision)
			time.Sleep(time.Second)
		}
		for name, tt := range map[string]struct {
			list     List
			revision uint64 // of the answer
			wantErr  bool
		}{
			"newer than all confirmed":        {list: List{ConfirmedBy: Within(bound, firstWrite.Add(time.Hour))}, revision: 15},
			"old, within the bound":           {list: List{ConfirmedBy: Within(bound, firstWrite.Add(3*time.Second+bound))}, revision: 13},
			"old, within bound and tolerance": {list: List{ConfirmedBy: Within(bound, firstWrite.Add(2*time.Second+bound+Tolerance))}, revision: 12},
			"older than bound and tolerance": {
				list: List{ConfirmedBy: Within(bound, firstWrite.Add(3*time.Second+bound+Tolerance))}, revision: 12, wantErr: true,
			},
			"without 12, which was confirmed before 11": {list: List{ConfirmedBy: firstWrite.Add(2 * time.Second)}, revision: 11, wantErr: true},
			"before the first write":                    {list: List{ConfirmedBy: firstWrite.Add(-time.Second)}, revision: 1},
			"any age allowed":                           {revision: 1},
			"at least 9, is 8":                          {list: List{Revision: 9}, revision: 8, wantErr: true},
			"exactly 9, is 9":                           {list: List{Revision: 9, Exactly: true}, revision: 9},
			"exactly 9, is 10":                          {list: List{Revision: 9, Exactly: true}, revision: 10, wantErr: true},
		} {
			if err := tt.list.Judge(tt.revision, l.BeforeOfAll); (err != nil) != tt.wantErr {
				t.Errorf("%s: got the error %v, want one: %t", name, err, tt.wantErr)
			}
		}
	})
}
