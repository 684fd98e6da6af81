/* The protocol of package rlm, with limits small enough to look at every run.
 *
 * A conversation is a recursive call; Promela has processes, so each conversation
 * is a process and its parent waits for it. The model (the language model) may say
 * anything at any turn: the choices in `say` are not fair, so what holds here holds
 * for a model that is as unhelpful as can be.
 *
 * What is checked: explore steps, commits, turns and depth stay within their
 * limits, all conversations together within the calls, context stays bound, and
 * every run comes to its end. `make model` runs it.
 */

#define EXPLORE 2   /* explore steps of a conversation */
#define COMMITS 2   /* commits of a conversation */
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
	byte explored = 0, commits = 0, turns = 0, bad = 0;
	bool ok, bound = true;   /* context is bound before the first turn */
	mtype said;
	chan child = [1] of { mtype };

	atomic { if :: depth > deepest -> deepest = depth :: else -> skip fi }
	do
	:: turns >= TURNS -> parent!failed; break
	:: turns < TURNS ->
		turns++;
		ask(ok);
		if
		:: !ok -> parent!failed; break
		:: else -> skip
		fi;
		if /* say */
		:: /* no move */
			bad++;
			if
			:: bad >= BAD -> parent!failed; break
			:: else -> skip
			fi
		:: /* explore: binds, perhaps context itself; never takes a name away */
			bad = 0;
			if
			:: explored < EXPLORE -> explored++; bound = true
			:: else -> skip
			fi
		:: /* commit without models: over a copy, of which one binding comes back */
			bad = 0;
			if
			:: commits < COMMITS -> commits++
			:: else -> skip
			fi
		:: /* commit with rlm_call */
			bad = 0;
			if
			:: commits < COMMITS ->
				commits++;
				if
				:: depth < DEPTH ->
					run conversation(depth + 1, child);
					child?said /* a child that failed is told to the model */
				:: else ->
					ask(ok)    /* the direct call */
				fi
			:: else -> skip
			fi
		:: /* final, by a name that is not bound */
			bad = 0
		:: /* final */
			parent!answered; break
		fi;
		if :: !bound -> unbound = true :: else -> skip fi;
		assert(explored <= EXPLORE && commits <= COMMITS && turns <= TURNS && bad < BAD)
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
