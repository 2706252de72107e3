package analyze

import (
	"time"
)

// maxRows bounds what is counted apart: clients, resources and verdicts. Beyond, requests count as of
// other clients.
const maxRows = 50_000

// otherClients stands for all clients beyond maxRows.
var otherClients = client{agent: "(others)", user: "(others)"}

// rowKey is what is counted apart.
type rowKey struct {
	client   client
	resource string
	verdict  verdict
}

// row is what is counted of requests that are alike.
type row struct {
	// begun and ended are of watches: a log has each watch when it begins and when it ends, or
	// only one of them, as its policy has it. Of lists there is only ended.
	begun, ended int64
	took         time.Duration
}

// count is the number of requests.
func (r *row) count() int64 { return max(r.begun, r.ended) }

// tally counts requests. Its memory is bounded.
type tally struct {
	rows map[rowKey]*row
	// from and to are the first and the last moment of a request.
	from, to time.Time
}

func newTally() *tally { return &tally{rows: map[rowKey]*row{}} }

// add counts a request that came at a time, zero if it is not known, and took so long. begun: a watch
// has begun, and is counted once more when it ends.
func (t *tally) add(key rowKey, begun bool, at time.Time, took time.Duration) {
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
	if at.IsZero() {
		return
	}
	if t.from.IsZero() || at.Before(t.from) {
		t.from = at
	}
	if at.After(t.to) {
		t.to = at
	}
}
