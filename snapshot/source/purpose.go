package source

import "context"

// Purpose is the purpose of a request to the upstream, for metrics and traces.
type Purpose string

// The purposes of requests.
const (
	ForList     Purpose = "list"     // reads a page of a list
	ForLoad     Purpose = "load"     // loads a state by a streaming list, which goes on as a watch
	ForWatch    Purpose = "watch"    // reads changes from a revision on
	ForProbe    Purpose = "probe"    // reads the upstream's current revision
	ForProgress Purpose = "progress" // reads the bookmark of a short watch, opened beside a long one
	ForLearn    Purpose = "learn"    // learns the form of objects and bookmarks in a watch, and the fields of selectors
)

// purposeContextKey is the key of a Purpose in a request's context.
type purposeContextKey struct{}

// collectionContextKey is the key of a CollectionKey in a request's context.
type collectionContextKey struct{}

// WithPurpose returns a context whose requests have a purpose.
func WithPurpose(ctx context.Context, purpose Purpose) context.Context {
	return context.WithValue(ctx, purposeContextKey{}, purpose)
}

// WithCollection returns a context whose requests read a collection.
func WithCollection(ctx context.Context, key CollectionKey) context.Context {
	return context.WithValue(ctx, collectionContextKey{}, key)
}

// Describe returns the purpose of a request with the context ctx, and the collection that the request reads: for example
// "list", "deployments.apps", "v1" and "json". All results are empty for a request that reads no collection.
func Describe(ctx context.Context) (purpose, resource, version, representation string) {
	key, ok := ctx.Value(collectionContextKey{}).(CollectionKey)
	if !ok {
		return "", "", "", ""
	}
	p, _ := ctx.Value(purposeContextKey{}).(Purpose)
	return string(p), key.GroupResource().String(), key.Version, string(key.Representation)
}

// withDefaultPurpose is WithPurpose, but keeps a purpose that ctx has already.
func withDefaultPurpose(ctx context.Context, purpose Purpose) context.Context {
	if _, ok := ctx.Value(purposeContextKey{}).(Purpose); ok {
		return ctx
	}
	return WithPurpose(ctx, purpose)
}
