// Package oracle tells tests what is right.
//
// A [Ledger] knows which revision was written when: what may be asked for, what must be seen, and
// how old a state is that was given as the newest. [Plain] and [Difference] say whether two lists
// are the same. A [Watch] knows what a watch must tell, and says what is wrong with what it told. A
// [Queue] lets answers be compared later, while others are asked for.
package oracle
