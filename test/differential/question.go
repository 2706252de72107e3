package differential

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
)

// Semantics says how an answer moves with time.
type Semantics string

// The semantics of a list; Legacy is an exact revision asked for by a limit alone.
const (
	Any          Semantics = "any"
	NotOlderThan Semantics = "not-older-than"
	Exact        Semantics = "exact"
	Legacy       Semantics = "legacy-exact"
	Continue     Semantics = "continue"
	MostRecent   Semantics = "most-recent"
)

// moving is true if the answer depends on when it is given.
func (s Semantics) moving() bool { return s == Any || s == NotOlderThan || s == MostRecent }

// Question is a request for a list.
type Question struct {
	Resource  cluster.Resource
	Namespace string // "" for the whole resource
	Path      string // instead of the resource's own, if not empty
	Query     url.Values
	RawQuery  string // follows the query as it stands
	User      cluster.User
	Header    http.Header
	HTTP1     bool
	Semantics Semantics
	// Origin is the semantics of the first page, on the pages that follow it.
	Origin Semantics
	// Representation that the Accept header asks for.
	Representation Representation
	// Revision that was asked for, if any.
	Revision uint64
	// Odd is true if the question may be refused, or read in more ways than one.
	Odd bool
	// Answerable is true if listproxy is to answer from memory.
	Answerable bool
	// Clocked is true if the answer holds ages, which are not compared.
	Clocked bool
}

// effective is the semantics that the API server gives the question: it reads a single key
// (metadata.name=) from etcd as it is now where a limit alone asks for a revision
// (storage.ValidateListOptions).
func (q Question) effective() Semantics {
	if q.Semantics == Legacy && q.single() {
		return MostRecent
	}
	return q.Semantics
}

func (q Question) target() string {
	target := q.Path
	if target == "" {
		target = q.Resource.Path(q.Namespace)
	}
	query := q.Query.Encode()
	if query != "" && q.RawQuery != "" {
		query += "&"
	}
	if query += q.RawQuery; query != "" {
		target += "?" + query
	}
	return target
}

// String is for reports; it holds no token.
func (q Question) String() string {
	protocol := "HTTP/2"
	if q.HTTP1 {
		protocol = "HTTP/1.1"
	}
	return fmt.Sprintf("GET %s as %s over %s %v (%s)", q.target(), q.User.Name, protocol, q.Header, q.Semantics)
}

// at returns the question for the same list at exactly a revision.
func (q Question) at(revision uint64) Question {
	query := maps.Clone(q.Query)
	text := strconv.FormatUint(revision, 10)
	if token := q.Query.Get("continue"); token != "" {
		// A token without a revision of its own (-1): the same start at this one.
		if t, err := body.DecodeToken(token); err == nil {
			t.Revision = int64(revision)
			query.Set("continue", t.Encode())
		}
	} else {
		query.Set("resourceVersion", text)
		query.Set("resourceVersionMatch", "Exact")
	}
	if q.Semantics == Any {
		// kube-apiserver ignores the limit there.
		query.Del("limit")
	}
	q.Query = query
	return q
}
