/* The protocol of package rlm, with limits small enough to look at every run.
 *
 * A conversation is a recursive call; Promela has processes, so each conversation
 * is a process and its parent waits for it. The model (the language model) may say
 * anything at any turn: the choices in `say` are not fair, so what holds here holds
 * for a model that is as unhelpful as can be.
 *
 * What is checked: explore steps, commit cycles, turns and depth stay within their
 * limits, all conversations together within the calls, context stays bound, every
 * run comes to its end, after the last explore step nothing but commit cycles
 * follows, and a run that is cut answers if and only if a commit succeeded.
 * docs/rlm-operations.md has the invariants; `make model` checks these.
 */

#define EXPLORE 2   /* explore steps of a conversation */
#define COMMITS 2   /* commit cycles of a conversation */
#define TURNS   5   /* messages of a conversation */
#define DEPTH   1   /* conversations below conversations */
#define CALLS   9   /* messages of all models together */
#define BAD     3   /* bad messages in a row end a conversation */

mtype = { answered, failed };

byte calls = 0;      /* of all conversations */
byte deepest = 0;
bool unbound = false; /* whether context was ever missing */
bool done = false;

/* ask counts a message; ok is false when no more may be sent. */
inline ask(ok) {
	atomic {
		if
		:: calls < CALLS -> calls++; ok = true
		:: else -> ok = false
		fi
	}
}

proctype conversation(byte depth; chan parent) {
	byte explored = 0, cycles = 0, turns = 0, bad = 0;
	bool ok, bound = true;   /* context is bound before the first turn */
	bool output = false;     /* whether a commit succeeded */
	bool committing;         /* whether no explore steps were left before this turn */
	byte after = 0;          /* turns since then */
	mtype said;
	chan child = [1] of { mtype };

	atomic { if :: depth > deepest -> deepest = depth :: else -> skip fi }
	do
	:: cycles >= COMMITS || turns >= TURNS -> /* cut: the last output is the answer */
		if
		:: output -> parent!answered
		:: else -> parent!failed
		fi;
		break
	:: else ->
		ask(ok);
		if
		:: !ok && output -> parent!answered; break
		:: !ok && !output -> parent!failed; break
		:: else -> turns++
		fi;
		committing = explored >= EXPLORE;
		if :: committing -> after++ :: else -> skip fi;
		if /* say */
		:: /* no move, or final by a name that is not bound */
			bad++;
			if :: committing -> cycles++ :: else -> skip fi;
			if
			:: bad >= BAD -> parent!failed; break
			:: else -> skip
			fi
		:: /* explore: binds, perhaps context itself; never takes a name away */
			bad = 0;
			if
			:: committing -> cycles++ /* refused */
			:: else -> explored++; bound = true
			fi
		:: /* commit without models: over a copy, of which one binding comes back */
			bad = 0;
			cycles++;
			if :: output = true :: skip /* it failed */ fi
		:: /* commit with rlm_call */
			bad = 0;
			cycles++;
			if
			:: depth < DEPTH ->
				run conversation(depth + 1, child);
				child?said /* a child that failed is reported to the model */
			:: else ->
				ask(ok);   /* the direct call */
				said = (ok -> answered : failed)
			fi;
			if :: said == answered -> output = true :: skip fi
		:: /* final */
			parent!answered; break
		fi;
		if :: !bound -> unbound = true :: else -> skip fi;
		assert(explored <= EXPLORE && cycles <= COMMITS && turns <= TURNS && bad < BAD);
		assert(after <= COMMITS)
	od
}

init {
	chan result = [1] of { mtype };
	mtype how;
	run conversation(0, result);
	result?how;
	done = true
}

ltl terminates { <> done }
ltl bounded { [] (calls <= CALLS && deepest <= DEPTH && !unbound) }
