package source

import "context"

// Kind is the purpose of a request to the upstream, for metrics and traces.
type Kind string

// The purposes of requests.
const (
	ForList     Kind = "list"     // reads a page, to learn the form, to load, or to compare
	ForLoad     Kind = "load"     // loads a state by a streaming list, which goes on as a watch
	ForWatch    Kind = "watch"    // reads changes from a revision on
	ForProbe    Kind = "probe"    // reads the upstream's current revision
	ForProgress Kind = "progress" // a short watch in addition to the feed's stream, for its bookmark
	ForLearn    Kind = "learn"    // learns the form of objects and bookmarks in a watch, and the fields of selectors
)

// kindContextKey and collectionContextKey are the keys of a Kind and a CollectionKey in a request's context.
type (
	kindContextKey       struct{}
	collectionContextKey struct{}
)

// With returns a context whose requests have a kind.
func With(ctx context.Context, kind Kind) context.Context {
	return context.WithValue(ctx, kindContextKey{}, kind)
}

// WithCollection returns a context whose requests read a collection.
func WithCollection(ctx context.Context, key CollectionKey) context.Context {
	return context.WithValue(ctx, collectionContextKey{}, key)
}

// Describe returns the kind of a request with a context; and the resource, the version and the representation that the
// request reads, in this order. It returns "" and nil for requests that read no collection.
func Describe(ctx context.Context) (kind string, collection []string) {
	key, ok := ctx.Value(collectionContextKey{}).(CollectionKey)
	if !ok {
		return "", nil
	}
	k, _ := ctx.Value(kindContextKey{}).(Kind)
	return string(k), []string{key.GroupResource().String(), key.Version, string(key.Representation)}
}

// withDefault returns a context whose requests have a kind: the kind of ctx, if it has one.
func withDefault(ctx context.Context, kind Kind) context.Context {
	if _, ok := ctx.Value(kindContextKey{}).(Kind); ok {
		return ctx
	}
	return With(ctx, kind)
}
