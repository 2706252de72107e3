package source

import "context"

// Kind is what a request to the upstream is for.
type Kind string

// What requests are for.
const (
	ForList     Kind = "list"     // a page: to learn the form, to load, or to compare what was loaded
	ForLoad     Kind = "load"     // a streaming list, which goes on as a watch
	ForWatch    Kind = "watch"    // going on from a revision
	ForProbe    Kind = "probe"    // how far the upstream is
	ForProgress Kind = "progress" // a short watch beside the feed's own, for a bookmark
	ForLearn    Kind = "learn"    // how the upstream writes objects and bookmarks in a watch, and which fields it knows
)

// kindKey is the key of a Kind in a request's context.
type kindKey struct{}

// With returns a context whose requests are of that kind, whatever they look like.
func With(ctx context.Context, kind Kind) context.Context {
	return context.WithValue(ctx, kindKey{}, kind)
}

// KindOf returns what a request with that context is for, and whether its answer is the stream that a feed reads. It is
// empty for requests that no Source sent.
func KindOf(ctx context.Context) (kind string, streams bool) {
	of, _ := ctx.Value(kindKey{}).(Kind)
	return string(of), of == ForLoad || of == ForWatch
}

// withDefault is [With], unless ctx has a kind already.
func withDefault(ctx context.Context, kind Kind) context.Context {
	if kind, _ := KindOf(ctx); kind != "" {
		return ctx
	}
	return With(ctx, kind)
}
