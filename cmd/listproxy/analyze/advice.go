package analyze

import (
	"cmp"
	"slices"

	"github.com/listproxy/listproxy/policy/reason"
)

// Advice says what brings more, or why nothing does.
type Advice struct {
	// What is a switch of listproxy, or the reason why kube-apiserver answers.
	What string `json:"what"`
	// Lists and Watches are how many it is about.
	Lists   int64 `json:"lists,omitempty"`
	Watches int64 `json:"watches,omitempty"`
	// Why is what these requests have in common, Do what to change.
	Why string `json:"why"`
	Do  string `json:"do"`
	// Most are those that sent the most of them.
	Most []Sender `json:"most"`
}

// Sender is who sent how many.
type Sender struct {
	UserAgent string `json:"userAgent"`
	User      string `json:"user,omitempty"`
	Resource  string `json:"resource"`
	Count     int64  `json:"count"`
}

// mostSenders is how many senders an advice names.
const mostSenders = 3

// switches are what is said of requests that a switch has answered from memory.
var switches = map[string]struct{ what, why, do string }{
	string(withConsistentLists): {
		"--consistent-lists",
		"They name no resourceVersion: they ask for the newest state.",
		"Start listproxy with --consistent-lists. With \"true\" it still forwards those that kube-apiserver answers " +
			"sooner: small lists, and lists of resources that rarely change; with \"always\" it answers nearly all. " +
			"A client that need not see what was written a moment ago can send resourceVersion=0, or be named in the policy (newestAsAny): " +
			"its lists are then answered without the switch.",
	},
	string(withWatches): {
		"--watches",
		"They are watches and streaming lists.",
		"Start listproxy with --watches.",
	},
}

// remedies say what to change for requests that are forwarded for a reason.
var remedies = map[reason.Reason]string{
	reason.Representation: "Only kube-apiserver writes tables and YAML. Let programs ask for JSON or protobuf. (Audit logs do not " +
		"name the form: for kubectl with limit=500 a table is assumed, since kubectl get asks for one; kubectl get -o json looks the same.)",
	reason.NotCached: "Secrets are kept only if a rule names them, Events never. A client can ask for less, or less often.",
	reason.Watch: "A rule of the policy says watches: false; or they are written in an old form (paths with /watch/, watch=yes). " +
		"Let the client write watch=true.",
	reason.Parameter: "Let the client leave out what is not a list's, or write each parameter once.",
	reason.NotCanonical: "Let the client ask by the plain path, such as /api/v1/namespaces/NAME/pods, without old forms such as /watch/, " +
		"and without resourceVersion beside continue.",
	reason.Invalid: "kube-apiserver refuses these. Mend the client.",
	reason.MostRecent: "A rule of the policy says consistentLists: false. Or they are continued at the newest state, since their token " +
		"has expired: let the client read its pages sooner.",
	reason.Selector:      "Look at the selectors: docs/operations.md says which are forwarded.",
	reason.Impersonation: "Let the client use credentials of its own instead of Impersonate-* headers.",
	reason.Anonymous:     "Let the client log in with a token or a certificate.",
	reason.Credentials:   "Let the client send one Authorization header.",
	reason.Aggregated: "Another API server answers for it, which may show each caller something else. If it shows the same to all, say " +
		"so in the policy (sameForEveryone).",
	whyRefused: "kube-apiserver refuses these too: the right is missing (403), the token is wrong (401), the revision has " +
		"expired (410), or it is too busy (429). Mend the client.",
}

// advise says what brings more, and for how many requests.
func advise(rows []Row) []Advice {
	found := map[string]*Advice{}
	for _, row := range rows {
		for _, form := range row.Forms {
			if form.AnsweredBy == string(byMemory) {
				continue
			}
			what := form.AnsweredBy
			if form.Reason != "" {
				what = string(form.Reason)
			}
			if found[what] == nil {
				found[what] = newAdvice(form)
			}
			found[what].add(row, form)
		}
	}
	all := make([]Advice, 0, len(found))
	for _, a := range found {
		slices.SortFunc(a.Most, func(a, b Sender) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.Resource, b.Resource))
		})
		a.Most = a.Most[:min(len(a.Most), mostSenders)]
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b Advice) int {
		return cmp.Or(cmp.Compare(b.Lists+b.Watches, a.Lists+a.Watches), cmp.Compare(a.What, b.What))
	})
	return all
}

func newAdvice(form Form) *Advice {
	if s, ok := switches[form.AnsweredBy]; ok {
		return &Advice{What: s.what, Why: s.why, Do: s.do}
	}
	why := form.Reason.Explain()
	if form.Reason == whyRefused {
		why = "kube-apiserver did not answer them with what they asked for."
	}
	return &Advice{
		What: string(form.Reason), Why: why,
		Do: cmp.Or(remedies[form.Reason], "docs/operations.md says what to do about this reason."),
	}
}

func (a *Advice) add(row Row, form Form) {
	if form.Kind == string(kindWatch) {
		a.Watches += form.Count
	} else {
		a.Lists += form.Count
	}
	sender := Sender{row.UserAgent, row.User, row.Resource, form.Count}
	// The forms of a row come one after the other.
	if last := len(a.Most) - 1; last >= 0 {
		if s := &a.Most[last]; s.UserAgent == row.UserAgent && s.User == row.User && s.Resource == row.Resource {
			s.Count += form.Count
			return
		}
	}
	a.Most = append(a.Most, sender)
}
