package oracle

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestList: a list must have every write that was confirmed by List.ConfirmedBy, even if writes were confirmed in another order
// than that of their revisions. Its revision must be at least List.Revision, or with Exactly be that revision.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger Ledger[string]
		begun := time.Now()
		for _, revision := range []uint64{10, 12, 11, 14, 14} { // confirmed 0, 1, 2, 3 and 4 s after begun
			ledger.Confirm("pods", revision)
			time.Sleep(time.Second)
		}
		confirmedBy := func(seconds int) List { return List{ConfirmedBy: begun.Add(time.Duration(seconds) * time.Second)} }
		for name, tt := range map[string]struct {
			list     List
			revision uint64 // of the answer
			wantErr  bool
		}{
			"newer than all writes":                            {list: confirmedBy(3600), revision: 15},
			"has all writes by 2 s, but not that at 3 s":       {list: confirmedBy(2), revision: 13},
			"has exactly the writes by 2 s":                    {list: confirmedBy(2), revision: 12},
			"lacks 14, which was confirmed at 3 s":             {list: confirmedBy(3), revision: 12, wantErr: true},
			"lacks 12, which was confirmed before 11":          {list: confirmedBy(2), revision: 11, wantErr: true},
			"lacks all writes, which were all confirmed later": {list: confirmedBy(-1), revision: 1},
			"may have any age":                                 {revision: 1},
			"at least 9, is 8":                                 {list: List{Revision: 9}, revision: 8, wantErr: true},
			"exactly 9, is 9":                                  {list: List{Revision: 9, Exactly: true}, revision: 9},
			"exactly 9, is 10":                                 {list: List{Revision: 9, Exactly: true}, revision: 10, wantErr: true},
		} {
			if err := tt.list.Judge(tt.revision, ledger.BeforeOfAll); (err != nil) != tt.wantErr {
				t.Errorf("%s: got the error %v, want one: %t", name, err, tt.wantErr)
			}
		}
	})
}

// TestWithin: an answer may be as old as the bound and a second of tolerance.
func TestWithin(t *testing.T) {
	asked := time.Now()
	if got, want := Within(6*time.Second, asked), asked.Add(-7*time.Second); !got.Equal(want) {
		t.Errorf("with a bound of 6 s, the answer must have the writes confirmed by %v, want %v", got, want)
	}
}
