package source

import "context"

// Kind is the purpose of a request to the upstream.
type Kind string

// The purposes of requests.
const (
	ForList     Kind = "list"     // reads a page, to learn the form, to load, or to compare
	ForLoad     Kind = "load"     // is a streaming list, which goes on as a watch
	ForWatch    Kind = "watch"    // is a watch that goes on from a revision
	ForProbe    Kind = "probe"    // reads the upstream's current revision
	ForProgress Kind = "progress" // is a short watch beside the feed's own, for its bookmark
	ForLearn    Kind = "learn"    // learns the form of objects and bookmarks in a watch, and the fields of selectors
)

// kindKey is the key of a Kind in a request's context.
type kindKey struct{}

// With returns a context whose requests have that kind.
func With(ctx context.Context, kind Kind) context.Context {
	return context.WithValue(ctx, kindKey{}, kind)
}

// KindOf returns the kind of a request with that context, and reports whether its answer is the stream that a feed reads.
// The kind is empty for requests that no Source sent.
func KindOf(ctx context.Context) (kind string, isStream bool) {
	k, _ := ctx.Value(kindKey{}).(Kind)
	return string(k), k == ForLoad || k == ForWatch
}

// withDefault is [With], unless ctx has a kind already.
func withDefault(ctx context.Context, kind Kind) context.Context {
	if kind, _ := KindOf(ctx); kind != "" {
		return ctx
	}
	return With(ctx, kind)
}
