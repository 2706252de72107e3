package upstreams

import "github.com/listproxy/listproxy/test/harness/ask"

// collection is what listproxy keeps, with a feed for each.
type collection struct{ plural, accept string }

func (c collection) path() string { return "/api/v1/" + c.plural }

func collections() []collection {
	var all []collection
	for _, plural := range []string{"configmaps", "pods"} {
		for _, accept := range []string{ask.JSON, ask.Protobuf, ask.Metadata} {
			all = append(all, collection{plural, accept})
		}
	}
	return all
}

// question is a list that is asked for, with its query in canonical form.
type question struct {
	collection
	query string
	// fixed: the answer is the same for ever. Any other is of the newest state.
	fixed bool
}

func (q question) target() string { return q.path() + "?" + q.query }

// at returns the question whose answer is the same for ever.
func (q question) at(revision uint64) question {
	if !q.fixed {
		q.query, q.fixed = ask.Exactly(revision), true
	}
	return q
}

func (q question) String() string { return "GET " + q.target() + " (" + q.accept + ")" }
