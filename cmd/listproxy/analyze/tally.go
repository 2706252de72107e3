package analyze

import "time"

// maxRows is the largest number of rows of a tally. Requests that would need another row count as those of
// otherClients.
const maxRows = 50_000

// otherClients stands for all clients beyond maxRows.
var otherClients = client{agent: "(others)", user: "(others)"}

// rowKey is what the requests of one row have in common.
type rowKey struct {
	client   client
	resource string
	verdict  verdict
}

// row has the number of requests with the same key, and the time that they took together.
type row struct {
	// begun and ended are the numbers of events about the beginning and the end of requests. Of a watch a log has one
	// of each, or only one, as the audit policy says. Lists have only events about the end.
	begun, ended int64
	took         time.Duration
}

// count returns the number of requests.
func (r *row) count() int64 { return max(r.begun, r.ended) }

// tally counts requests. Its memory is bounded.
type tally struct {
	rows     map[rowKey]*row
	from, to time.Time // the times at which the first and the last request came
}

func newTally() *tally { return &tally{rows: map[rowKey]*row{}} }

// add counts an event of a request: about its beginning if begun is true, otherwise about its end. received is the
// time at which the request came, or zero if the log does not have it.
func (t *tally) add(key rowKey, begun bool, received time.Time, took time.Duration) {
	if t.rows[key] == nil && len(t.rows) >= maxRows {
		key.client, key.resource = otherClients, "?"
	}
	if t.rows[key] == nil {
		t.rows[key] = &row{}
	}
	if begun {
		t.rows[key].begun++
	} else {
		t.rows[key].ended++
	}
	t.rows[key].took += took
	if received.IsZero() {
		return
	}
	if t.from.IsZero() || received.Before(t.from) {
		t.from = received
	}
	if received.After(t.to) {
		t.to = received
	}
}
