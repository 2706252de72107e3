package faults

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/ask"
)

// TestTooOld: the age of an answer is held against the ledger, whatever kinds were written.
func TestTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		begun := time.Now()
		for i, k := range []kind{pods, configMaps, widgets} { // at 0, 1 and 2 s: revisions 10, 11 and 12
			l.add(k, 10+uint64(i)) // #nosec G115 -- a small number
			<-time.After(time.Second)
		}
		for _, tt := range []struct {
			revision uint64
			asked    time.Duration // after the beginning
			behind   time.Duration
			tooOld   bool
		}{
			{revision: 12, asked: time.Hour, behind: 0},
			{revision: 13, asked: time.Hour, behind: 0},
			{revision: 11, asked: time.Second, behind: 0}, // 12 was written later
			{revision: 11, asked: 2*time.Second + bound, behind: bound},
			{revision: 10, asked: time.Second + bound + tolerance, behind: bound + tolerance},
			{revision: 10, asked: 2*time.Second + bound + tolerance, behind: bound + tolerance + time.Second, tooOld: true},
			{revision: 9, asked: time.Hour, behind: time.Hour, tooOld: true},
		} {
			behind := l.behind(tt.revision, begun.Add(tt.asked))
			if behind != tt.behind || tooOld(behind) != tt.tooOld {
				t.Errorf("revision %d, asked for after %v: behind %v (too old: %t), want %v (%t)",
					tt.revision, tt.asked, behind, tooOld(behind), tt.behind, tt.tooOld)
			}
		}
	})
}

// TestNewest: which lists have an age.
func TestNewest(t *testing.T) {
	for query, want := range map[string]bool{
		"":                               true,
		"limit=7":                        true,
		ask.AnyVersion:                   true,
		ask.NotOlderThan(7):              true,
		ask.Exactly(7):                   false,
		ask.FirstPage(7, ask.Exactly(7)): false,
		ask.NextPage(7, "a token"):       false,
	} {
		if got := (question{query: query}).newest(); got != want {
			t.Errorf("%q: %t, want %t", query, got, want)
		}
	}
}
