package source

import "context"

// Kind is the purpose of a request to the upstream.
type Kind string

// The purposes of requests.
const (
	ForList     Kind = "list"     // a page, to learn the form, to load, or to compare
	ForLoad     Kind = "load"     // a streaming list, which goes on as a watch
	ForWatch    Kind = "watch"    // a watch that goes on from a revision
	ForProbe    Kind = "probe"    // the upstream's current revision
	ForProgress Kind = "progress" // a short watch beside the feed's own, for its bookmark
	ForLearn    Kind = "learn"    // the form of objects and bookmarks in a watch, and the fields of selectors
)

// kindKey and collectionContextKey are the keys of a Kind and a CollectionKey in a request's context.
type (
	kindKey              struct{}
	collectionContextKey struct{}
)

// With returns a context whose requests have that kind.
func With(ctx context.Context, kind Kind) context.Context {
	return context.WithValue(ctx, kindKey{}, kind)
}

// WithCollection returns a context whose requests read that collection.
func WithCollection(ctx context.Context, key CollectionKey) context.Context {
	return context.WithValue(ctx, collectionContextKey{}, key)
}

// Describe returns the kind of a request with that context, and the resource, version and representation that the
// request reads. The kind is empty for requests that read no collection.
func Describe(ctx context.Context) (kind string, collection []string) {
	key, ok := ctx.Value(collectionContextKey{}).(CollectionKey)
	if !ok {
		return "", nil
	}
	k, _ := ctx.Value(kindKey{}).(Kind)
	return string(k), []string{key.GroupResource().String(), key.Version, string(key.Representation)}
}

// withDefault is [With], unless ctx has a kind already.
func withDefault(ctx context.Context, kind Kind) context.Context {
	if _, ok := ctx.Value(kindKey{}).(Kind); ok {
		return ctx
	}
	return With(ctx, kind)
}
