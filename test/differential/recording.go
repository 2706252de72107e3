package differential

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/oracle"
)

// Recording is what the API server said of an exact revision while it could.
type Recording struct {
	question Question
	answer   Answer
}

// Record asks the API server for the exact lists of all resources at their newest revision that is
// known. The recordings tell whether an answer is right after the API server has lost the revision.
func (c *Comparator) Record(ctx context.Context) ([]Recording, error) {
	var all []Recording
	for _, r := range c.cluster.Resources {
		g := NewGenerator(c.cluster, nil, c.options)
		entries := c.cluster.Ledger.Newest(r.GroupResource())
		if entries == 0 {
			continue
		}
		for _, limit := range []string{"", "3"} {
			q := Question{
				Resource: r, User: g.users[0], Semantics: Exact, Representation: JSON, Revision: entries, Answerable: r.Cached, Header: http.Header{},
				Query: url.Values{"resourceVersion": {strconv.FormatUint(entries, 10)}, "resourceVersionMatch": {"Exact"}},
			}
			if limit != "" {
				q.Query.Set("limit", limit)
			}
			answer, err := c.ask(ctx, c.direct, q)
			if err != nil || answer.Status != http.StatusOK {
				return nil, fmt.Errorf("recording %s: %d, %w", q, answer.Status, err)
			}
			all = append(all, Recording{q, answer})
		}
	}
	return all, nil
}

// Replay asks listproxy for what was recorded: it may say that the revision is gone, or the same
// as the API server said then. It returns how many answers there still were.
func (c *Comparator) Replay(ctx context.Context, recordings []Recording) (answered int) {
	for _, recorded := range recordings {
		answer, err := c.ask(ctx, c.door(), recorded.question)
		d := &Difference{Kind: Silent, Question: recorded.question.String(), CacheStatus: answer.Header.Get("Cache-Status")}
		switch {
		case err != nil:
			d.Detail = err.Error()
		case answer.Status == http.StatusGone:
			continue
		case answer.Status != http.StatusOK:
			d.Kind, d.Detail = Status, fmt.Sprintf("%d: %.300s", answer.Status, answer.Body)
		case !bytes.Equal(answer.Body, recorded.answer.Body) && !body.SameButToken(answer.Body, recorded.answer.Body):
			d.Kind, d.Detail = Body, oracle.Difference(answer.Body, recorded.answer.Body)
		default:
			answered++
			continue
		}
		c.report.Differs(*d)
	}
	return answered
}
