package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/oracle"
)

// TestVerifierAfterLoss: Verifier.verify compares an answer with kube-apiserver's. If that differs, a record of the lost
// history (the etcd of before) may show that the answer is right:
//
//   - After a compaction kube-apiserver's answer alone counts, as long as it has the revision.
//   - After etcd was replaced, an answer of the old etcd is right for as long as listproxy need not know of the new one. A list
//     of any version is right until Bound is over, a consistent list only if it was asked for before the replacement, and a
//     list at an exact revision for ever.
//
// In all cases kube-apiserver has the pod "a" at resourceVersion 12, and the record has it at 9.
func TestVerifierAfterLoss(t *testing.T) {
	const (
		recordedRevision = 10 // the revision of the last state in the record
		answerRevision   = 20 // the revision of the answer from memory
		maxRevision      = 30 // the last revision of the lost history
		lostObject       = "9"
		currentObject    = "12"
		tooLate          = Bound + 2*oracle.Tolerance // surely past what is tolerated
	)
	// list returns a list of one pod.
	list := func(revision uint64, objectRevision string) []byte {
		return fmt.Appendf(nil, `{"kind":"PodList","metadata":{"resourceVersion":"%d"},"items":[`+
			`{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":%q}}]}`, revision, objectRevision)
	}
	currentBody, lostBody := list(answerRevision, currentObject), list(answerRevision, lostObject)
	recorded, err := ask.ReadList(list(recordedRevision, lostObject))
	expect.NoError(t, err)
	states := map[kinds.Kind][]state{Pods: {{revision: recordedRevision, objects: recorded.Objects}}}
	compacted := LostHistory{maxRevision: maxRevision, states: states}
	replaced := LostHistory{maxRevision: maxRevision, states: states, etcdReplaced: true}
	// This etcd was replaced before it reached answerRevision.
	replacedEarlier := LostHistory{maxRevision: answerRevision - 1, states: states, etcdReplaced: true}

	// The stand-in of kube-apiserver sends the current state for every revision.
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(currentBody) }))
	defer upstream.Close()

	type outcome struct{ compared, recorded, mistakes int }
	var (
		right         = outcome{compared: 1}
		rightByRecord = outcome{compared: 1, recorded: 1}
		tooOld        = outcome{compared: 1, recorded: 1, mistakes: 1} // in the record, but no longer allowed
		wrong         = outcome{mistakes: 1}                           // neither kube-apiserver nor the record has it
	)
	for _, tt := range []struct {
		name    string
		history LostHistory
		query   string        // "": a consistent list
		asked   time.Duration // after etcd was replaced
		body    []byte        // the answer from memory
		want    outcome
	}{
		{name: "current state", history: compacted, query: ask.AnyVersion, body: currentBody, want: right},
		{name: "compacted state, but API server has another", history: compacted, query: ask.AnyVersion, body: lostBody, want: wrong},
		{name: "any version, within bound", history: replaced, query: ask.AnyVersion, asked: Bound, body: lostBody, want: rightByRecord},
		{name: "any version, after bound", history: replaced, query: ask.AnyVersion, asked: tooLate, body: lostBody, want: tooOld},
		{name: "exact revision, after bound", history: replaced, query: ask.Exactly(answerRevision), asked: time.Hour, body: lostBody, want: rightByRecord},
		{name: "consistent list, after replacement", history: replaced, asked: time.Second, body: lostBody, want: tooOld},
		{name: "consistent list, before replacement", history: replaced, asked: -time.Second, body: lostBody, want: rightByRecord},
		{name: "revision beyond lost history", history: replacedEarlier, query: ask.AnyVersion, body: lostBody, want: wrong},
		{name: "state of neither history", history: replaced, query: ask.AnyVersion, body: list(answerRevision, "8"), want: wrong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := New(ask.At(upstream.URL))
			l.Verifier.RecordLoss(&tt.history)
			if tt.history.etcdReplaced {
				l.Verifier.RecordReplacement()
			}
			decoded, err := ask.ReadList(tt.body)
			expect.NoError(t, err)
			header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}} // as net/http sends it for the upstream
			l.Verifier.verify(t.Context(), Hit{
				Question: Question{Collection: Collection{Kind: Pods, Representation: AsJSON}, Query: tt.query},
				Answer:   ask.Answer{Code: http.StatusOK, Header: header, Body: tt.body},
				List:     decoded,
				Asked:    time.Now().Add(tt.asked),
			})
			counts := l.Tally.Counts(Window{})
			got := outcome{compared: counts.Compared, recorded: counts.Recorded, mistakes: len(counts.Mistakes)}
			if got != tt.want {
				t.Errorf("got %+v, want %+v; mistakes: %q", got, tt.want, counts.Mistakes)
			}
		})
	}
}
