package upstreams

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestOutages: that nobody was answered is seen wherever in a part it was, and also if it was all of it.
func TestOutages(t *testing.T) {
	const limit = 10 * time.Second
	ok, gone := ask.Answer{Code: 200}, errors.New("connection refused")
	for name, tt := range map[string]struct {
		answers map[time.Duration]error // after how long; nil: there was one
		direct  time.Duration           // for how long an undisturbed API server does not answer, from the beginning
		want    []string                // outages of a part of 20 s
	}{
		"none":             {map[time.Duration]error{5 * time.Second: nil, 12 * time.Second: nil}, time.Second, nil},
		"at the beginning": {map[time.Duration]error{12 * time.Second: nil}, time.Second, []string{sortList}},
		"in the middle":    {map[time.Duration]error{time.Second: nil, 5 * time.Second: gone, 13 * time.Second: nil}, time.Second, []string{sortList}},
		"at the end":       {map[time.Duration]error{time.Second: nil, 8 * time.Second: nil, 15 * time.Second: gone}, time.Second, []string{sortList}},
		"all the time":     {map[time.Duration]error{time.Second: gone}, time.Second, []string{sortList}},
		"of the machine":   {map[time.Duration]error{12 * time.Second: nil}, 5 * time.Second, nil},
		"and longer":       {map[time.Duration]error{17 * time.Second: nil}, 5 * time.Second, []string{sortList}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newVerifier()
				o.expect(sortList, sortDirect)
				time.Sleep(time.Hour) // of no part
				o.begin()
				for second := range 20 {
					time.Sleep(time.Second)
					if time.Duration(second+1)*time.Second >= tt.direct {
						o.heardDirect(ok, nil)
					}
					if err, now := tt.answers[time.Duration(second+1)*time.Second]; now {
						o.heard(sortList, ok, err)
					}
				}
				if diff := cmp.Diff(tt.want, o.begin().outages(limit)); diff != "" {
					t.Errorf("outages (-want +got):\n%s", diff)
				}
			})
		})
	}
}
