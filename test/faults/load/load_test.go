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

// TestVerifierAfterLoss: once kube-apiserver has lost a history, Verifier.verify accepts an answer of that history only if
// etcd was replaced, and only for as long as listproxy may not know of that: a list of an exact revision for ever, a
// consistent list only if it was asked for before the replacement.
func TestVerifierAfterLoss(t *testing.T) {
	const (
		recordedRevision = 10 // of the last state in the record
		answerRevision   = 20
		maxRevision      = 30 // of the lost history
		lostObject       = "9"
		currentObject    = "12"
		tooLate          = Bound + 2*oracle.Tolerance // surely past what is tolerated
	)
	list := func(revision uint64, objectRevision string) []byte {
		return fmt.Appendf(nil, `{"kind":"PodList","metadata":{"resourceVersion":"%d"},"items":[`+
			`{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":%q}}]}`, revision, objectRevision)
	}
	current, lost := list(answerRevision, currentObject), list(answerRevision, lostObject)
	recorded, err := ask.ReadList(list(recordedRevision, lostObject))
	expect.NoError(t, err)
	states := map[kinds.Kind][]state{Pods: {{revision: recordedRevision, objects: recorded.Objects}}}
	compacted := LostHistory{maxRevision: maxRevision, states: states}
	replaced := LostHistory{maxRevision: maxRevision, states: states, etcdReplaced: true}
	replacedBefore := LostHistory{maxRevision: answerRevision - 1, states: states, etcdReplaced: true}

	// kube-apiserver has the current state at every revision.
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(current) }))
	defer upstream.Close()

	type outcome struct{ compared, recorded, mistakes int }
	var (
		right         = outcome{compared: 1}
		rightByRecord = outcome{compared: 1, recorded: 1}
		tooOld        = outcome{compared: 1, recorded: 1, mistakes: 1} // right by the record, but no longer allowed
		wrong         = outcome{mistakes: 1}
	)
	for _, tt := range []struct {
		name    string
		history LostHistory
		query   string
		asked   time.Duration // after etcd was replaced
		body    []byte
		want    outcome
	}{
		{name: "current state", history: compacted, query: ask.AnyVersion, body: current, want: right},
		{name: "compacted state, but API server has another", history: compacted, query: ask.AnyVersion, body: lost, want: wrong},
		{name: "any version, within bound", history: replaced, query: ask.AnyVersion, asked: Bound, body: lost, want: rightByRecord},
		{name: "any version, after bound", history: replaced, query: ask.AnyVersion, asked: tooLate, body: lost, want: tooOld},
		{name: "exact revision, after bound", history: replaced, query: ask.Exactly(answerRevision), asked: time.Hour, body: lost, want: rightByRecord},
		{name: "consistent list, after replacement", history: replaced, asked: time.Second, body: lost, want: tooOld},
		{name: "consistent list, before replacement", history: replaced, asked: -time.Second, body: lost, want: rightByRecord},
		{name: "revision beyond lost history", history: replacedBefore, query: ask.AnyVersion, body: lost, want: wrong},
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
