package analyze

import (
	"time"
)

const (
	// maxClients bounds the clients that are told apart, and maxRows what is counted apart of all of
	// them together. Beyond, requests count as of other clients.
	maxClients = 5_000
	maxRows    = 100_000
	// maxMoments bounds the columns of the plot. Where there are more, two become one.
	maxMoments = 240
)

// otherClients stands for all clients beyond maxClients.
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
	bytes        int64
	sized        int64 // how many have told their bytes
}

// count is how many requests there were.
func (r *row) count() int64 { return max(r.begun, r.ended) }

// tally counts requests. Its memory is bounded.
type tally struct {
	clients map[client]bool
	rows    map[rowKey]*row
	moments moments
	// from and to are the first and the last moment of a request.
	from, to time.Time
}

func newTally() *tally {
	return &tally{clients: map[client]bool{}, rows: map[rowKey]*row{}, moments: moments{width: time.Second}}
}

// add counts a request.
func (t *tally) add(r request) {
	counted := t.row(rowKey{r.client, r.resource, r.verdict})
	if r.begun {
		counted.begun++
	} else {
		counted.ended++
	}
	counted.took += r.took
	if r.bytes >= 0 {
		counted.bytes += r.bytes
		counted.sized++
	}
	if r.at.IsZero() {
		return
	}
	if t.from.IsZero() || r.at.Before(t.from) {
		t.from = r.at
	}
	if r.at.After(t.to) {
		t.to = r.at
	}
	if r.verdict.kind == kindList {
		t.moments.add(r.at, r.verdict.by)
	}
}

// row is where requests of a key are counted.
func (t *tally) row(key rowKey) *row {
	if found, ok := t.rows[key]; ok {
		return found
	}
	if !t.clients[key.client] {
		if len(t.clients) >= maxClients {
			key.client = otherClients
		}
		t.clients[key.client] = true
	}
	if len(t.rows) >= maxRows {
		key.client, key.resource = otherClients, "?"
	}
	if found, ok := t.rows[key]; ok {
		return found
	}
	made := &row{}
	t.rows[key] = made
	return made
}

// moments are how many lists came at which time, and who answers them: for the plot.
type moments struct {
	width  time.Duration
	counts map[int64]map[answerer]int64 // by the time since 1970 in widths
}

// add counts a list.
func (m *moments) add(at time.Time, by answerer) {
	if m.counts == nil {
		m.counts = map[int64]map[answerer]int64{}
	}
	m.put(at.UnixNano()/int64(m.width), by, 1)
	for len(m.counts) > maxMoments {
		narrow := m.counts
		m.width, m.counts = 2*m.width, map[int64]map[answerer]int64{}
		for moment, counts := range narrow {
			for by, n := range counts {
				m.put(moment>>1, by, n)
			}
		}
	}
}

func (m *moments) put(moment int64, by answerer, n int64) {
	if m.counts[moment] == nil {
		m.counts[moment] = map[answerer]int64{}
	}
	m.counts[moment][by] += n
}
