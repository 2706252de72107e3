package faults

import (
	"bufio"
	stdcmp "cmp"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// breaks notes that the fault begins now. What a case does before that only prepares it.
func (s *scene) breaks() { s.broken = load.Window{From: time.Now()} }

// mends notes that the fault ends now. What a case does after that only completes it.
func (s *scene) mends() { s.broken.To = time.Now() }

// since is the time from one moment to another, which may have come before it; nil if that never
// came.
func since(begin time.Time, at *time.Time) *time.Duration {
	if at == nil {
		return nil
	}
	d := at.Sub(begin)
	return &d
}

// firstTold returns when listproxy first logged a message from a time on, or nil. Its clock is
// ours.
func firstTold(log, message string, from time.Time) *time.Time {
	for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "time="), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		// The log has milliseconds, and cuts the rest off.
		if err == nil && strings.Contains(rest, message) && !at.Before(from.Truncate(time.Millisecond)) {
			return &at
		}
	}
	return nil
}

// serversChanged is what listproxy logs when it notices that another kube-apiserver answers.
const serversChanged = `msg="the API servers behind the upstream changed`

// firstTold returns when any listproxy that runs first logged a message from a time on, or nil.
func (s *scene) firstTold(message string, from time.Time) (first *time.Time) {
	for _, p := range s.proxies.All() {
		if at := firstTold(p.Log(), message, from); at != nil && (first == nil || at.Before(*first)) {
			first = at
		}
	}
	return first
}

// leases returns who holds the Leases of API servers, by name.
func (s *scene) leases() map[string]string {
	s.Helper()
	holders := map[string]string{}
	s.must(poll.Retry(s.Context(), "the API servers' Leases", func() error {
		a, err := s.direct.Do(s.Context(), http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"+
			"?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver", nil)
		if err != nil {
			return err
		}
		var list coordinationv1.LeaseList
		if err := json.Unmarshal(a.Body, &list); err != nil {
			return err
		}
		for _, l := range list.Items {
			holders[l.Name] = *stdcmp.Or(l.Spec.HolderIdentity, new(string))
		}
		return nil
	}))
	return holders
}

func TestFirstTold(t *testing.T) {
	const log = "panic: x\n" +
		"time=2026-11-22T10:00:00.500Z level=INFO msg=\"it changed\" a=1\n" +
		"time=2026-11-22T10:00:02.750Z level=INFO msg=other\n" +
		"time=2026-11-22T10:00:03.250Z level=INFO msg=\"it changed\"\n" +
		"time=2026-11-22T10:00:04.250Z level=INFO msg=\"it changed\"\n"
	at := func(seconds float64) time.Time {
		return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
	}
	for _, tt := range []struct {
		from float64
		want []time.Time
	}{
		{from: 0, want: []time.Time{at(0.5)}},
		{from: 0.5001, want: []time.Time{at(0.5)}}, // within the millisecond
		{from: 1, want: []time.Time{at(3.25)}},
		{from: 5},
	} {
		var got []time.Time
		if told := firstTold(log, "it changed", at(tt.from)); told != nil {
			got = []time.Time{*told}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("from %v s (-want +got):\n%s", tt.from, diff)
		}
	}
}
