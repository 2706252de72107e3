package analyze

import (
	"cmp"
	"slices"

	"github.com/listproxy/listproxy/policy/reason"
)

// Advice says what to change so that more requests are answered from memory.
type Advice struct {
	// What is the switch with which listproxy would answer, consistent-lists or watches. If kube-apiserver answers in any case,
	// What is the [reason.Reason].
	What string `json:"what"`
	// Lists and Watches are the numbers of requests that the advice is about.
	Lists   int64 `json:"lists,omitempty"`
	Watches int64 `json:"watches,omitempty"`
	// Why says what these requests have in common.
	Why string `json:"why"`
	// Do says what to change.
	Do string `json:"do"`
	// TopSenders are the senders of the most of these requests, at most maxSenders.
	TopSenders []Sender `json:"most"`

	countBySource map[Source]int64
}

// Sender is a client with the number of its requests for one resource.
type Sender struct {
	Source
	Count int64 `json:"count"`
}

// maxSenders is the largest number of senders that an Advice names.
const maxSenders = 3

// texts are the Why and Do of an Advice. If one is empty, the Advice has the text of [reason.Reason.Explain] instead.
type texts struct{ why, do string }

// ownTexts has texts by [Advice.What]. They replace the texts of Explain that do not suit the reader of a log, or that do not
// exist.
var ownTexts = map[string]texts{
	string(byMemoryIfConsistentLists): {
		why: "They name no resourceVersion: they ask for the newest state.",
		do: "Start listproxy with --consistent-lists. With \"true\" it still forwards small lists; with \"always\" it answers " +
			"nearly all. A client that need not see what was written a moment ago can send resourceVersion=0: its lists are " +
			"then answered without the switch.",
	},
	string(byMemoryIfWatches): {why: "They are watches and streaming lists.", do: "Start listproxy with --watches."},
	string(reasonRefused): {
		why: "kube-apiserver did not answer them with what they asked for.",
		do: "kube-apiserver refuses these too: the right is missing (403), the token is wrong (401), the revision has " +
			"expired (410), or it is too busy (429). Mend the client.",
	},
	string(reason.Representation): {do: "Let programs ask for JSON or protobuf. (Audit logs lack the Accept header: for kubectl " +
		"with limit=500 a table is assumed, since kubectl get asks for one; kubectl get -o json looks the same.)"},
	string(reason.Watch): {do: "A rule of the policy says watches: false, or the watches are written in an old form (paths " +
		"with /watch/, watch=yes): let the client write watch=true."},
	string(reason.Consistent): {do: "A rule of the policy says consistentLists: false, or the lists are continued at the " +
		"newest state, since their token has expired: let the client read its pages sooner."},
}

// advise returns advice about the requests that a listproxy without switches would not answer from memory: one Advice for each
// reason, and one for each switch that would help. The Advice about the most requests is first.
func advise(rows []Row) []Advice {
	byWhat := map[string]*Advice{}
	for _, row := range rows {
		for _, f := range row.Forms {
			if f.AnsweredBy == byMemory {
				continue
			}
			what := cmp.Or(string(f.Reason), string(f.AnsweredBy)) // if there is no reason, a switch would help
			if byWhat[what] == nil {
				byWhat[what] = newAdvice(what, f.Reason)
			}
			byWhat[what].add(row, f)
		}
	}
	all := make([]Advice, 0, len(byWhat))
	for _, advice := range byWhat {
		advice.setTopSenders()
		all = append(all, *advice)
	}
	slices.SortFunc(all, func(a, b Advice) int {
		return cmp.Or(cmp.Compare(b.Lists+b.Watches, a.Lists+a.Watches), cmp.Compare(a.What, b.What))
	})
	return all
}

// newAdvice returns an Advice without requests. what is its What: a switch, or r as a string. r is None if what is a switch.
func newAdvice(what string, r reason.Reason) *Advice {
	own := ownTexts[what]
	why, do := r.Explain()
	return &Advice{What: what, Why: cmp.Or(own.why, why), Do: cmp.Or(own.do, do), countBySource: map[Source]int64{}}
}

// add counts the requests of one form of a row.
func (a *Advice) add(row Row, f FormCount) {
	if f.Verb == verbWatch {
		a.Watches += f.Count
	} else {
		a.Lists += f.Count
	}
	a.countBySource[row.Source] += f.Count
}

// setTopSenders sets TopSenders from countBySource.
func (a *Advice) setTopSenders() {
	for source, count := range a.countBySource {
		a.TopSenders = append(a.TopSenders, Sender{Source: source, Count: count})
	}
	slices.SortFunc(a.TopSenders, compareSenders)
	a.TopSenders = a.TopSenders[:min(len(a.TopSenders), maxSenders)]
}

func compareSenders(a, b Sender) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), a.Source.compare(b.Source))
}
