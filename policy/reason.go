package policy

// Reason says why a request is forwarded instead of being answered from memory.
// The set is fixed; the same words appear in the Cache-Status header, in metrics,
// in traces and in the documentation. The empty Reason means that there is none.
type Reason string

// Reasons that are found in the request itself.
const (
	// ReasonNotList: not a GET of the list of a resource collection.
	ReasonNotList Reason = "not-list"
	// ReasonWatch: a watch, asked for by parameter or by path.
	ReasonWatch Reason = "watch"
	// ReasonNotCanonical: path, query or headers are not in the one exact form
	// that we serve. The upstream may well understand it.
	ReasonNotCanonical Reason = "not-canonical"
	// ReasonParameter: a query parameter is unknown, given twice, or has a value
	// that is not in its canonical form.
	ReasonParameter Reason = "parameter"
	// ReasonInvalid: a combination of list options that the upstream refuses.
	ReasonInvalid Reason = "invalid"
	// ReasonMostRecent: the list must be as new as the storage is now, which only
	// the upstream can know.
	ReasonMostRecent Reason = "most-recent"
	// ReasonSelector: a label or field selector that does not parse, that is too
	// large, that names a field which we do not know, or for which the upstream does
	// something else than to select.
	ReasonSelector Reason = "selector"
	// ReasonRepresentation: the client prefers a media type, or a transformation
	// such as Table, that is not kept in memory, or none that the upstream has.
	ReasonRepresentation Reason = "representation"
	// ReasonPretty: indented output, asked for by parameter, media type, or by
	// being a browser or a command line tool.
	ReasonPretty Reason = "pretty"
	// ReasonImpersonation: the caller sends Impersonate-* headers of its own.
	ReasonImpersonation Reason = "impersonation"
	// ReasonAnonymous: there is no Authorization header with a bearer token.
	ReasonAnonymous Reason = "anonymous"
	// ReasonCredentials: there are several Authorization headers, or one with a token
	// that is written in an odd way, so it is not certain who the caller is.
	ReasonCredentials Reason = "credentials"
)

// Reasons that are found on the way to an answer.
const (
	// ReasonUnknownCaller: the upstream has not accepted the caller's token yet, or refused it the last
	// time. Nothing about the cluster is looked up for such a caller.
	ReasonUnknownCaller Reason = "unknown-caller"
	// ReasonNotAllowed: the upstream's review did not say yes.
	ReasonNotAllowed Reason = "not-allowed"
	// ReasonNotLent: listproxy's own account may not list this as the caller, whom it would have to
	// impersonate.
	ReasonNotLent Reason = "not-lent"
	// ReasonReviewFailed: the upstream could not be asked for a review; or there was no room for the question;
	// or its answer expired before the list could be written; or memory had no answer, and the upstream's own
	// answer to the list does not show whether the caller may.
	ReasonReviewFailed Reason = "review-failed"
	// ReasonNotCached: the policy keeps this resource out of memory.
	ReasonNotCached Reason = "not-cached"
	// ReasonUnknownResource: the upstream's discovery does not list the resource.
	ReasonUnknownResource Reason = "unknown-resource"
	// ReasonAudit: the audit log cannot take down that the answer came from memory.
	ReasonAudit Reason = "audit"
	// ReasonAggregated: an aggregated API server owns the resource; it may answer
	// each caller differently.
	ReasonAggregated Reason = "aggregated"
)

// Reasons that a collection gives. Package snapshot has the same words.
const (
	// ReasonWarming: the collection has not been read completely yet.
	ReasonWarming Reason = "warming"
	// ReasonNotPermitted: listproxy itself may not list and watch the resource.
	ReasonNotPermitted Reason = "not-permitted"
	// ReasonForm: the upstream's list and watch forms of an object could not be
	// reconciled byte for byte.
	ReasonForm Reason = "form"
	// ReasonStale: the feed has been silent for too long to vouch for the present.
	ReasonStale Reason = "stale"
	// ReasonAhead: the revision is newer than what the feed has reached.
	ReasonAhead Reason = "ahead"
	// ReasonHistory: the revision is not in the history that is kept.
	ReasonHistory Reason = "history"
	// ReasonMemory: the configured bound on memory leaves no room.
	ReasonMemory Reason = "memory"
	// ReasonSchema: the custom resource's definition changed a moment ago, and bytes of
	// the old schema may still be about; or a change would not be heard of now.
	ReasonSchema Reason = "schema"
	// ReasonUpstream: the API servers behind the upstream changed a moment ago, or do not
	// agree in which version they write the resource.
	ReasonUpstream Reason = "upstream"
	// ReasonStopped: the collection was stopped.
	ReasonStopped Reason = "stopped"
)

// Reasons returns every Reason in the order of its declaration, for
// documentation, tests and metrics. The slice is the caller's.
func Reasons() []Reason {
	return []Reason{
		ReasonNotList,
		ReasonWatch,
		ReasonNotCanonical,
		ReasonParameter,
		ReasonInvalid,
		ReasonMostRecent,
		ReasonSelector,
		ReasonRepresentation,
		ReasonPretty,
		ReasonImpersonation,
		ReasonAnonymous,
		ReasonCredentials,

		ReasonUnknownCaller,
		ReasonNotAllowed,
		ReasonNotLent,
		ReasonReviewFailed,
		ReasonNotCached,
		ReasonUnknownResource,
		ReasonAudit,
		ReasonAggregated,

		ReasonWarming,
		ReasonNotPermitted,
		ReasonForm,
		ReasonStale,
		ReasonAhead,
		ReasonHistory,
		ReasonMemory,
		ReasonSchema,
		ReasonUpstream,
		ReasonStopped,
	}
}
