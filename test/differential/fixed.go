package differential

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// Compare asks both sides for one list of a resource with a query and headers, as a user, and
// reports how they differ. The semantics is that of the query.
func (c *Comparator) Compare(ctx context.Context, r cluster.Resource, namespace string, user cluster.User, query url.Values, header http.Header) {
	q := Question{
		Resource: r, Namespace: namespace, User: user, Query: query, Header: header, Semantics: Exact,
		Representation: JSON,
	}
	if len(header["Accept"]) > 0 {
		// Whether it is answered from memory is not what is compared.
		q.Representation, q.Odd = OddForm, true
	}
	revision := query.Get("resourceVersion")
	switch {
	case query.Get("continue") != "":
		q.Semantics = Continue
	case revision == "":
		q.Semantics = MostRecent
	case revision == "0":
		q.Semantics = Any
	case query.Get("resourceVersionMatch") == "NotOlderThan" || query.Get("limit") == "" && query.Get("resourceVersionMatch") == "":
		q.Semantics = NotOlderThan
		q.Revision, _ = strconv.ParseUint(revision, 10, 64) // a bad one is refused by both
	}
	q.Answerable = q.memory(c.options.Consistent)
	c.compare(ctx, q)
}

// DirectSize is how many bytes the API server's list has in a representation.
func (c *Comparator) DirectSize(ctx context.Context, r cluster.Resource, namespace string, user cluster.User, query url.Values, accept string) (int, error) {
	answer, err := c.direct.Ask(ctx, Question{
		Resource: r, Namespace: namespace, User: user, Query: query, Header: http.Header{"Accept": {accept}},
	})
	return len(answer.Body), err
}

// ProxyAnswer asks listproxy, and not the API server.
func (c *Comparator) ProxyAnswer(ctx context.Context, r cluster.Resource, namespace string, user cluster.User, query url.Values) (Answer, error) {
	return c.proxy.Ask(ctx, Question{Resource: r, Namespace: namespace, User: user, Query: query})
}

// Exactly is the query for a list at a revision.
func Exactly(revision uint64) url.Values {
	return url.Values{"resourceVersion": {strconv.FormatUint(revision, 10)}, "resourceVersionMatch": {"Exact"}}
}
