// Package oracle knows what is right, for tests.
//
// A [Ledger] knows which revision was written when, and so which revisions a client may ask for,
// which writes an answer must contain, and how old a state is that was given as the newest. A [Watch]
// knows what a watch must tell, and says what is wrong with what it told. [Difference] shows where two
// bodies differ. A [Queue] lets tests compare answers later, while they ask for others.
package oracle
